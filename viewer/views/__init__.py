"""Records made readable: what a record of each kind says, as blocks that a page draws. Pure: no index, no files."""

from viewer.views.record import Around as Around
from viewer.views.record import Sibling as Sibling
from viewer.views.record import view_of as view_of
