package stdio

// canTry says whether pipes can be read and written without waiting.
const canTry = false

func (l *lineReader) tryRead(uintptr) bool { return false }

func writeNow(any, []byte) int { return 0 }
