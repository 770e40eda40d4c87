"""What real nodes cost: programs that come and go (`passing`), and many idle nodes (`crowd`)."""
