package task

import "fmt"

// MaxRecordPrompt bounds the prompt in a record, in bytes: it is written with each event. The
// whole is the first message of the transcript of an agent, and the input of a driver.
const MaxRecordPrompt = MaxRecordText

// ShortPrompt is a prompt as a record has it: of a long one the beginning, and how much
// more there was.
func ShortPrompt(text string) string { return Shortened(text, MaxRecordPrompt) }

// Shortened is a text of at most so many bytes: of a longer one the beginning, and how much
// more there was.
func Shortened(text string, most int) string {
	const mark = 48 // bytes, at most
	if len(text) <= most {
		return text
	}
	head := cut(text, most-mark)
	return fmt.Sprintf("%s… [and %d bytes more]", head, len(text)-len(head))
}
