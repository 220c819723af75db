"""A machine that follows a pickle's opcodes on a symbolic stack and runs none of them."""
