package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Refusing refuses a request that holds a text in one of its fields, with the path of the field as
// the called API writes it, and why. Other requests are answered by next.
func Refusing(text, why string, next Handler) Handler {
	return func(ctx context.Context, r *Request) Answer {
		var body any
		if json.Unmarshal(r.Body, &body) != nil {
			return next(ctx, r)
		}
		path := where(body, text, r.API == Messages)
		if path == nil {
			return next(ctx, r)
		}
		a := Error(http.StatusBadRequest, "invalid_request_error", why)
		if r.API == Messages {
			a.failure.message = strings.Join(path, ".") + ": " + why
			return a
		}
		a.failure.param = path[0]
		for _, part := range path[1:] {
			if strings.Trim(part, "0123456789") == "" {
				a.failure.param += "[" + part + "]"
			} else {
				a.failure.param += "." + part
			}
		}
		a.failure.message = fmt.Sprintf("Invalid '%s': %s", a.failure.param, why)
		return a
	}
}

// where is the path to a text in a value; tagged: with the type of each object in it.
func where(in any, text string, tagged bool) []string {
	switch in := in.(type) {
	case string:
		if strings.Contains(in, text) {
			return []string{}
		}
	case []any:
		for i, v := range in {
			if path := where(v, text, tagged); path != nil {
				return slices.Insert(path, 0, fmt.Sprint(i))
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(in)) {
			path := where(in[key], text, tagged)
			if path == nil {
				continue
			}
			path = slices.Insert(path, 0, key)
			if kind, ok := in["type"].(string); ok && tagged {
				path = slices.Insert(path, 0, kind)
			} else if in["input_schema"] != nil && tagged {
				path = slices.Insert(path, 0, "custom")
			}
			return path
		}
	}
	return nil
}
