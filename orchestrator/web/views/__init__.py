"""Pages. A view fetches and authorises in one call, reads by queries, renders one template."""
