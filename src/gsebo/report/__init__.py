"""Tables and figures from stored results only, and pages, also of one graph."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.report.evidence import Evidence as Evidence
    from gsebo.report.evidence import Summary as Summary
    from gsebo.report.evidence import gaps as gaps
    from gsebo.report.evidence import gather_evidence as gather_evidence
    from gsebo.report.tables.entry import Entry as Entry
    from gsebo.report.tables.entry import entries as entries
    from gsebo.report.tables.sheets import accuracy_sheet as accuracy_sheet
    from gsebo.report.tables.sheets import choices_sheet as choices_sheet
    from gsebo.report.tables.significance import paired_p_value as paired_p_value

make_lazy(__name__)
