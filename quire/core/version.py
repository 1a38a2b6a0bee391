"""The version of quire.

Said here and not asked of the installed package: the library for that takes longer to import than most of quire.
"""

QUIRE_VERSION = "0.1.0"
