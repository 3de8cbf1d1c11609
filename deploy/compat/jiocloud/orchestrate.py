"""python -m jiocloud.orchestrate ARG... runs jorc ARG... in place of this process."""
import os
import sys


def main():
    try:
        os.execvp("jorc", ["jorc"] + sys.argv[1:])
    except OSError as error:
        sys.stderr.write("jiocloud.orchestrate: cannot run jorc: %s; install jorc on this host\n" % error)
        return 127


if __name__ == "__main__":
    sys.exit(main())
