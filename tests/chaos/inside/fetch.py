"""`python -m tests.chaos.inside.fetch URL`: what a service of the stack answers."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

if __name__ == "__main__":
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.read().decode())
