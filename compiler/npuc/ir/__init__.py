"""The intermediate representation: values, ops, graphs and what walks them."""
