"""What of a project goes by itself, by rules that its admins set. Without a rule nothing goes.

A look (`looking`) finds what is due by a rule and what of that must stay, with the reason. What is
due is marked and goes after the days of grace; until then anybody who may edit keeps it by hand.
`kinds` knows for each kind of thing what is due, how large it is and how it goes; `protecting` what
results rest on. A dry run is the same look without a mark.
"""

from __future__ import annotations
