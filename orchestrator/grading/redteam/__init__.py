"""Attacking a rubric with `rubrics.redteam` on past rollouts, in the background."""
