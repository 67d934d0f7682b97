from .fpn import FPN
from .plain import PlainNet

_ARCHS = {"fpn": FPN, "plain": PlainNet}


def build_model(name, **kwargs):
    return _ARCHS[name](**kwargs)
