"""A process that is one rank after the other, so that tests of many models pay for importing torch once."""

import os
import socket
import sys
from threading import Thread

from quire.executor.rank_child import end_with_the_first, serve


def main() -> None:
    Thread(target=end_with_the_first, daemon=True).start()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                serve(connection)


if __name__ == "__main__":
    main()
    os._exit(0)
