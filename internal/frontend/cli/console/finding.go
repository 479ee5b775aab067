package console

// Finding is the result of one check of the doctor.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // how to fix it
}

// Level is the severity of a [Finding].
type Level string

// The levels. Bad makes `drover doctor` fail.
const (
	Good Level = "ok"
	Warn Level = "warning"
	Bad  Level = "error"
)
