"""The casebook: one failure mode a file, in folders by where the cause lies."""
