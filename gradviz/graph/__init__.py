"""The record of a graph: plain immutable records, their columns, and graph files. Knows
no torch.
"""

from gradviz.graph.model import Graph as Graph, column as column
from gradviz.graph.records import (
    NO_ATTRIBUTES as NO_ATTRIBUTES,
    Absent as Absent,
    BackwardStep as BackwardStep,
    Base as Base,
    Data as Data,
    Edge as Edge,
    Function as Function,
    FunctionCall as FunctionCall,
    Group as Group,
    GroupKind as GroupKind,
    Leaf as Leaf,
    LeafKind as LeafKind,
    Mark as Mark,
    MarkKind as MarkKind,
    Node as Node,
    NodeFlag as NodeFlag,
    Packing as Packing,
    Process as Process,
    RankShare as RankShare,
    Root as Root,
    SavedState as SavedState,
    SavedTensor as SavedTensor,
    Scope as Scope,
    Shape as Shape,
    SourceLine as SourceLine,
    Storage as Storage,
    StorageKind as StorageKind,
    TensorInfo as TensorInfo,
    Uses as Uses,
)
