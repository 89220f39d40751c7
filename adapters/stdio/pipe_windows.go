package stdio

// canTry says that pipes cannot be read or written without waiting here.
const canTry = false

func (l *lineReader) tryRead(uintptr) bool { return false }

func writeNow(any, []byte) int { return 0 }
