"""Copies what the tests need of a finished run, with this machine's names and paths taken out.

python collect.py FOLDER TARGET FILE...
"""

import re
import socket
import sys
from pathlib import Path

PLAIN = [
    (r"(?:/[\w.-]+)+/lib/python3\.\d+/", "/usr/lib/python3/"),
    (r"(?:/[\w.-]+)+/bin/python[\d.]*", "/usr/bin/python"),
    (r"/root(?:/[\w.-]+)*/", "/home/user/"),
    (r"\.\d{3,7}\.0$", ".1.0"),
]


def main() -> None:
    """Copies the files named on the command line."""
    folder, target = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    for name in sys.argv[3:]:
        for path in sorted(folder.glob(name)):
            place = target / re.sub(
                rf"\.{re.escape(socket.gethostname())}\.\d+\.0$", ".localhost.1.0", str(path.relative_to(folder))
            )
            place.parent.mkdir(parents=True, exist_ok=True)
            body = path.read_bytes()
            place.write_bytes(body if b"\0" in body else scrubbed(body.decode(), str(folder)).encode())


def scrubbed(text: str, folder: str) -> str:
    """The text without the paths and names of the machine that trained."""
    text = text.replace(folder, "/home/user/run").replace(f"_{socket.gethostname()}", "_localhost")
    for pattern, plain in PLAIN:
        text = re.sub(pattern, plain, text)
    return text


if __name__ == "__main__":
    main()
