"""What a server of HTTP/3 must do, asked by a client that shares no code with it.

    python checks.py ADDRESS NAME CA GROUP...

NAME is the name of the site; CA is the file of its authority. Each check of the groups prints a line. The exit status is 1 if one has
failed. The site has `/text.txt` ("a text\\n"), `/ten.bin` (10,000,000 times "x"), `/large.bin` (50,000,000 times "x"), and the scripts
`/echo.php` (which says what it got), `/back.php` (which sends the body back) and `/hint.php` (103 before the answer).
"""

import sys
import time
import traceback

# These enter their checks in the list.
import answers  # noqa: F401
import messages  # noqa: F401
import transport  # noqa: F401
from client import Target
from expect import GROUPS


def main():
    address, name, ca, *groups = sys.argv[1:]
    target = Target(address, name, ca)
    failed = []
    count = 0
    for group in groups:
        for function in GROUPS[group]:
            count += 1
            began = time.monotonic()
            try:
                function(target)
            except Exception as error:
                failed.append(function.__name__)
                print(f"FAILED {function.__name__}: {error!r}")
                traceback.print_exc(file=sys.stdout)
            else:
                print(f"fine {function.__name__}, {time.monotonic() - began:.2f} s", flush=True)
    print(f"{count - len(failed)} fine, {len(failed)} failed: {' '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
