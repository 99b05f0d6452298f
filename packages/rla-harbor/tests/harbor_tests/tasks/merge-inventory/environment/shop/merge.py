def merge(one, other):
    one.update(other)
    return one
