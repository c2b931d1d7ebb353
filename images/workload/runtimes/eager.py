"""The model as it is."""


def prepare(args, model, example):
    return model
