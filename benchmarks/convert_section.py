"""What the report says of conversions."""

from collections.abc import Sequence

from benchmarks.markdown import Line, latest, megabytes, number, table


def convert(lines: Sequence[Line]) -> str:
    """Seconds and peak memory by the size of the file."""
    case = ("format", "rows", "nodes", "edges")
    rows = [
        [
            *(str(line[key]) for key in case),
            megabytes(line["file_bytes"]),
            number(line["seconds"]),
            number(line["processor_seconds"]),
            number(line["megabytes_per_second"]),
            megabytes(line["peak_bytes"]),
            megabytes(line["idle_bytes"]),
        ]
        for line in latest(lines, ("format", "rows", "degree"))
    ]
    heads = [*case, "file, MB", "s", "processor, s", "MB/s", "peak, MB", "idle, MB"]
    return "\n\n".join(
        [
            "`gsebo data convert --edges FILE` in a fresh process on one thread: "
            "resident memory at most, and before the work began (imports). Other work "
            "on the machine disturbs processor time less than the clock.",
            table(heads, rows),
        ]
    )
