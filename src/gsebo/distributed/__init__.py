"""Training in several processes: who they are, and per-edge numbers that they share."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.distributed.group import Alone as Alone
    from gsebo.distributed.group import Distributed as Distributed
    from gsebo.distributed.group import Group as Group
    from gsebo.distributed.group import current_group as current_group
    from gsebo.distributed.group import launched as launched
    from gsebo.distributed.group import leave_group as leave_group
    from gsebo.distributed.group import quiet_other_ranks as quiet_other_ranks
    from gsebo.distributed.group import share as share
    from gsebo.distributed.group import shares as shares
    from gsebo.distributed.tables import Entries as Entries
    from gsebo.distributed.tables import EntryTable as EntryTable
    from gsebo.distributed.tables import add_up as add_up
    from gsebo.distributed.tables import discard_tables as discard_tables
    from gsebo.distributed.tables import load_table as load_table
    from gsebo.distributed.tables import save_table as save_table

make_lazy(__name__)
