"""What the site's reference asks of docstrings, beyond mkdocstrings.

Names in docstrings, such as ``:class:`~gsebo.Graph```, become links where they are
public, and a public name without a docstring is a warning, which ends the build.
"""

import re
from importlib import import_module
from typing import Any

from griffe import Alias, Extension, Module, NameResolutionError, Object
from mkdocs.plugins import get_plugin_logger

log = get_plugin_logger("reference")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([\w.]+)`")


class Reference(Extension):
    """Reads the package once, when everything in it is known."""

    def __init__(self) -> None:
        super().__init__()
        # Where each public thing is made, and the name that readers know.
        self._public: dict[str, str] = {}

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Look for docstrings of everything public, and for names in all docstrings."""
        for package in (pkg, *pkg.modules.values()):
            if package.is_init_module:
                for name in getattr(import_module(package.path), "__all__", ()):
                    self._see(package[name])
        self._link_names(pkg)

    def _see(self, thing: Object | Alias) -> None:
        made = thing.final_target if isinstance(thing, Alias) else thing
        self._public.setdefault(made.path, thing.path)
        if not made.docstring:
            log.warning("%s has no docstring", thing.path)

    def _link_names(self, thing: Object) -> None:
        if thing.docstring:
            thing.docstring.value = ROLE.sub(
                lambda found: self._link(thing, found[1], found[2]),
                thing.docstring.value,
            )
        for member in thing.members.values():
            if isinstance(member, Object):
                self._link_names(member)

    def _link(self, thing: Object, short: str, name: str) -> str:
        """A link to a public name or to what belongs to one, and letters otherwise."""
        shown = f"`{name.rpartition('.')[2] if short else name}`"
        owner, _, member = name.rpartition(".")
        for path, more in ((name, ""), (owner, f".{member}")):
            if path and (place := self._public.get(_made_at(thing, path))):
                return f"[{shown}][{place}{more}]"
        return shown


def _made_at(thing: Object, name: str) -> str:
    """Path of what a docstring calls so; empty if it cannot be told."""
    try:
        path = name if "." in name else thing.resolve(name)
        found = thing.modules_collection[path]
    except (KeyError, NameResolutionError):
        return ""
    return str(found.final_target.path if isinstance(found, Alias) else found.path)
