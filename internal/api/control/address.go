package control

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
)

// A request without a body has its fields in the address, under their names in JSON, and its ref in the path. They are
// texts, numbers from 0 on, and truth values; fields without a value are left out.

// address returns the fields of a request that are set, as a part of an address.
func address(req any) url.Values {
	q, v := url.Values{}, reflect.ValueOf(req)
	for i := range v.NumField() {
		if name := fieldName(v, i); name != "ref" && !v.Field(i).IsZero() {
			q.Set(name, fmt.Sprint(plainly(v.Field(i))))
		}
	}
	return q
}

// plainly is the value of a field without the form that its type has for people.
func plainly(v reflect.Value) any {
	if v.CanInt() {
		return v.Int()
	}
	return v.Interface()
}

func fieldName(v reflect.Value, i int) string {
	name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
	return name
}

// ask reads a request from an address. Parameters that are no field of it are ignored.
func ask(r *http.Request, into any) error {
	q, v := r.URL.Query(), reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		name := fieldName(v, i)
		text := q.Get(name)
		if name == "ref" {
			text = r.PathValue(name)
		}
		if text == "" {
			continue
		}
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Bool:
			b, err := strconv.ParseBool(text)
			if err != nil {
				return Refuse(Invalid, fmt.Sprintf("%s %.40q: neither true nor false", name, text), "")
			}
			f.SetBool(b)
		case reflect.Int, reflect.Int64:
			n, err := strconv.ParseInt(text, 10, f.Type().Bits())
			if err != nil || n < 0 {
				return Refuse(Invalid, fmt.Sprintf("%s %.40q: not a whole number from 0 on", name, text), "")
			}
			f.SetInt(n)
		}
	}
	return nil
}
