"""Operations in an order that ends the step sooner."""
