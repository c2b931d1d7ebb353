def read(document):
    return None
