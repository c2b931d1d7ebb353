"""The model as it is."""


def prepare(model, example):
    return model
