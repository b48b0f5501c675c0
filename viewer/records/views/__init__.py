"""Records made readable: what a record of each kind says, as blocks that a page draws. Pure: no index, no files."""

from stepscope.viewer.records.views.record import Around as Around
from stepscope.viewer.records.views.record import Sibling as Sibling
from stepscope.viewer.records.views.record import view_of as view_of
