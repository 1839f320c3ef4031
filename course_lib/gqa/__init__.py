"""Grouped-query attention, and the cache that it makes small (lesson 04)."""

from .cache import KVCache
from .causal_at import CausalAt
from .layer import GroupedQueryAttention, mean_pool_kv_heads
from .sizes import kv_cache_bytes

__all__ = ["CausalAt", "GroupedQueryAttention", "KVCache", "kv_cache_bytes", "mean_pool_kv_heads"]
