"""The verbs: pure functions over a read interface (`rath_bridge.store.protocol.Reader`)."""
