package console

// Finding is one thing that the doctor looked at.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // how to fix it
}

// Level says how bad a [Finding] is.
type Level string

// The levels. Bad makes `drover doctor` fail.
const (
	Good Level = "ok"
	Warn Level = "warning"
	Bad  Level = "error"
)
