package todo

import "fmt"

// NameVariable names the list that sessions and the command line share.
const NameVariable = "DROVER_TODO_LIST"

// ListName is the list that the environment names, else the given one.
func ListName(env func(string) string, otherwise string) (string, error) {
	name := env(NameVariable)
	if name == "" {
		return otherwise, nil
	}
	if err := CheckName(name); err != nil {
		return "", fmt.Errorf("%s: %w", NameVariable, err)
	}
	return name, nil
}

// CheckName refuses a name that a list cannot have: the list's folder has the same name.
func CheckName(name string) error {
	ok := name != "" && len(name) <= 64
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%.70q is no name of a to-do list (up to 64 letters, digits, - and _)", name)
	}
	return nil
}
