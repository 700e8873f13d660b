"""In the API reference every field of a class has a description, and settings show those that they inherit.

The description is the comment behind the field, where shapes and units are written, or the one above it.
"""

import re
from typing import Any

import griffe

SETTINGS = re.compile(r"(Config|Hyper|Options)$")
"""Classes of which a reader wants all fields in one place."""


class Comments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.docstring is None and attr.lineno is not None and attr.name[0] != "_":
            lines = attr.lines_collection[attr.filepath]
            behind, above = re.search(r"  # (.+)$", lines[attr.lineno - 1]), []
            for line in reversed(lines[: attr.lineno - 1]):
                if not (comment := re.fullmatch(r"\s*# (.+)", line)):
                    break
                above.insert(0, comment[1])
            field = isinstance(attr.parent, griffe.Class) and attr.annotation is not None
            said = behind[1] if behind else " ".join(above)
            if said or field:  # what has none is left out of the page; a field says its type and default at least
                attr.docstring = griffe.Docstring(said or "&#8203;", lineno=attr.lineno, parent=attr)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        for module in _modules(pkg):
            for cls in module.classes.values():
                if not cls.is_alias and SETTINGS.search(cls.name):
                    _inherit(cls)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    inside = [_modules(m) for m in module.modules.values() if not m.is_alias]
    return [module, *(m for ms in inside for m in ms)]


def _inherit(cls: griffe.Class) -> None:
    """Fields of the classes that `cls` is made of, before its own, as `dataclasses.fields` has them."""
    theirs: dict[str, Any] = {}
    for base in reversed(cls.mro()):
        theirs |= {name: attr for name, attr in base.attributes.items() if attr.annotation is not None}
    own = dict(cls.members)
    for name, attr in theirs.items():
        if name not in own and name[0] != "_":
            cls.members[name] = griffe.Alias(name, attr, parent=cls)
