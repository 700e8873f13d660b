"""In the API reference the comment behind a field is its description: shapes and units are written there."""

import re
from typing import Any

import griffe


class Comments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.docstring is None and attr.lineno is not None:
            line = attr.lines_collection[attr.filepath][attr.lineno - 1]
            if comment := re.search(r"  # (.+)$", line):
                attr.docstring = griffe.Docstring(comment[1], lineno=attr.lineno, parent=attr)
