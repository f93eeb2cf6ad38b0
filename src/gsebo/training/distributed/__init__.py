"""Training in several processes: who they are, and per-edge numbers that they share."""

from gsebo.training.distributed.entries import Entries as Entries
from gsebo.training.distributed.entries import add_up as add_up
from gsebo.training.distributed.group import Alone as Alone
from gsebo.training.distributed.group import Group as Group
from gsebo.training.distributed.group import share as share
from gsebo.training.distributed.group import shares as shares
from gsebo.training.distributed.launch import launched as launched
from gsebo.training.distributed.launch import quiet_other_ranks as quiet_other_ranks
from gsebo.training.distributed.process_group import Distributed as Distributed
from gsebo.training.distributed.process_group import current_group as current_group
from gsebo.training.distributed.process_group import leave_group as leave_group
from gsebo.training.distributed.table_files import discard_tables as discard_tables
from gsebo.training.distributed.table_files import load_table as load_table
from gsebo.training.distributed.table_files import save_table as save_table
from gsebo.training.distributed.tables import EntryTable as EntryTable
from gsebo.training.distributed.tables import LocalTable as LocalTable
from gsebo.training.distributed.tables import ShardedTable as ShardedTable
from gsebo.training.distributed.tables import entry_table as entry_table
