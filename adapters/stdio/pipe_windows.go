package stdio

// writeNow writes nothing here: there is no writing without waiting.
func writeNow(any, []byte) int { return 0 }
