"""What a topic takes from producers: the deep check, whom it blames, and the form in which a batch is kept."""
