"""Pages. Each view fetches and authorises in one call, reads through queries, and renders one template."""
