"""Tables, figures and pages, from stored results only."""

from gsebo.report.accuracy_sheet import accuracy_sheet as accuracy_sheet
from gsebo.report.choices_sheet import choices_sheet as choices_sheet
from gsebo.report.entry import Entry as Entry
from gsebo.report.entry import entries as entries
from gsebo.report.evidence import Evidence as Evidence
from gsebo.report.evidence import gather as gather
from gsebo.report.formats import formats as formats
from gsebo.report.gaps import gaps as gaps
from gsebo.report.summary import Summary as Summary
from gsebo.report.summary import paired_p_value as paired_p_value
