"""Background work and serving in several processes over one vault: kills, speed, and how soon a right is gone."""
