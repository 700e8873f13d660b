"""The line that installs an extra, for each place that jaxrl may have come from."""

import subprocess
import sys

import pytest

from jaxrl import extras


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, 'pip install "jaxrl[tpu]"'),
        (
            {"url": "file:///home/me/my%20code", "dir_info": {"editable": True}},
            'pip install -e "/home/me/my code[tpu]"',
        ),
        ({"url": "file:///home/me/jaxrl", "dir_info": {}}, 'pip install "/home/me/jaxrl[tpu]"'),
        (
            {"url": "https://host/me/jaxrl", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            'pip install "jaxrl[tpu] @ git+https://host/me/jaxrl"',
        ),
        (
            {
                "url": "https://host/me/jaxrl",
                "vcs_info": {"vcs": "git", "commit_id": "abc", "requested_revision": "v1"},
            },
            'pip install "jaxrl[tpu] @ git+https://host/me/jaxrl@v1"',
        ),
        ({"url": "file:///tmp/jaxrl-0.1-py3-none-any.whl", "archive_info": {}}, None),
    ],
)
def test_the_line_fits_where_it_came_from(origin, line):
    line = line or f'pip install "jaxrl[tpu] @ {origin["url"]}"'
    assert extras._line("tpu", origin) == line


def test_pip_takes_the_line_of_this_installation():
    """Without installing: pip reads the project that the line names, and finds the extra in it."""
    *command, what = extras.install("gymnasium").split(" ", 3 if " -e " in extras.install("gymnasium") else 2)
    words = [*command[1:], what.strip('"'), "--dry-run", "--no-deps", "--no-build-isolation", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    assert done.returncode == 0 and "does not provide the extra" not in done.stderr, done.stderr
