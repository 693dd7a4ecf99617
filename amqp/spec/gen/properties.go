package main

// writeProperties emits the flags of the basic properties, the decoded form with
// its codec, and the readers over raw properties.
func writeProperties(o *output, d *document) {
	var fields []field
	for _, c := range d.Classes {
		if c.Name == "basic" {
			fields = c.Fields
		}
	}
	writeFlags(o, fields)
	writePropertiesStruct(o, fields)
	for _, f := range fields {
		writeAccessors(o, f)
	}
	writePropertiesCodec(o, fields)
	writeRawAccessors(o, fields)
}

func writeFlags(o *output, fields []field) {
	o.p("// One flag for each property, as on the wire.\nconst (")
	for i, f := range fields {
		o.p("Prop%s PropertyFlags = 1 << %d", goName(f.Rename), 15-i)
	}
	o.p(")\n")
	o.p("// propsAll holds every defined flag; the others hold those whose value has the named encoding.\nconst (")
	for _, kind := range []string{"", "shortstr", "octet", "table", "timestamp"} {
		name := "propsAll"
		if kind != "" {
			name = "props" + goName(kind)
		}
		o.WriteString(name + " PropertyFlags = 0")
		for _, f := range fields {
			if kind == "" || f.Type == kind {
				o.WriteString(" | Prop" + goName(f.Rename))
			}
		}
		o.p("")
	}
	o.p(")\n")
}

func writePropertiesStruct(o *output, fields []field) {
	o.p("// Properties are the properties of a message in decoded form. A property is present or absent; an absent one\n// is not the same as one that is empty or zero. The zero value has none. The headers are shared with\n// whoever set them; everything else is a value.")
	o.p("type Properties struct {\nflags PropertyFlags")
	for _, f := range fields {
		o.p("%s %s", lower(goName(f.Rename)), goTypes[f.Type])
	}
	o.p("}\n")
}

// lower makes an unexported name that is not a Go keyword.
func lower(name string) string {
	if name == "Type" {
		return "typeName"
	}
	return string(name[0]|0x20) + name[1:]
}

func writeAccessors(o *output, f field) {
	name, typ := goName(f.Rename), goTypes[f.Type]
	o.p("// %s returns the %s property and whether it is present.", name, f.Rename)
	o.p("func (p *Properties) %s() (%s, bool) { return p.%s, p.flags&Prop%s != 0 }\n", name, typ, lower(name), name)
	o.p("// Set%s makes the %s property present with value v.", name, f.Rename)
	o.p("func (p *Properties) Set%s(v %s) {\np.%s = v\np.flags |= Prop%s\n}\n", name, typ, lower(name), name)
}

func writePropertiesCodec(o *output, fields []field) {
	o.p("// Remove makes the named properties absent.\nfunc (p *Properties) Remove(flags PropertyFlags) {\np.flags &^= flags")
	for _, f := range fields {
		name := goName(f.Rename)
		zero := map[string]string{"string": `""`, "uint8": "0", "Timestamp": "0", "Table": "nil"}[goTypes[f.Type]]
		o.p("if flags&Prop%s != 0 {\np.%s = %s\n}", name, lower(name), zero)
	}
	o.p("}\n")

	o.p("// AppendTo appends the flags and values as they stand in a content header. Decoding and appending\n// reproduces the bytes. The panics of [Method.AppendTo] apply.")
	o.p("func (p *Properties) AppendTo(dst []byte) []byte {\ndst = binary.BigEndian.AppendUint16(dst, uint16(p.flags))")
	for _, f := range fields {
		name := goName(f.Rename)
		o.p("if p.flags&Prop%s != 0 {", name)
		v := "p." + lower(name)
		switch f.Type {
		case "shortstr":
			o.p("dst = appendShortstr(dst, %s)", v)
		case "octet":
			o.p("dst = append(dst, %s)", v)
		case "table":
			o.p("dst = AppendTable(dst, %s)", v)
		case "timestamp":
			o.p("dst = binary.BigEndian.AppendUint64(dst, uint64(%s))", v)
		}
		o.p("}")
	}
	o.p("return dst\n}\n")

	o.p("func (p *Properties) decode(c *cursor) {")
	for _, f := range fields {
		name := goName(f.Rename)
		v := "p." + lower(name)
		o.p("if p.flags&Prop%s != 0 {", name)
		switch f.Type {
		case "shortstr":
			o.p("c.shortstr(&%s)", v)
		case "octet":
			o.p("%s = c.u8()", v)
		case "table":
			o.p("%s = c.table()", v)
		case "timestamp":
			o.p("%s = Timestamp(c.u64())", v)
		}
		o.p("}")
	}
	o.p("}\n")
}

func writeRawAccessors(o *output, fields []field) {
	for _, f := range fields {
		name := goName(f.Rename)
		if f.Type == "table" {
			continue // written by hand: it can fail
		}
		o.p("// %s returns the %s property without decoding the others; ok is false when it is absent or the\n// properties are malformed before its end.", name, f.Rename)
		o.p("func (r RawProperties) %s() (v %s, ok bool) {\nb := r.value(Prop%s)\nif b == nil {\nreturn v, false\n}", name, goTypes[f.Type], name)
		switch f.Type {
		case "shortstr":
			o.p("return string(b[1:]), true\n}\n")
		case "octet":
			o.p("return b[0], true\n}\n")
		case "timestamp":
			o.p("return Timestamp(binary.BigEndian.Uint64(b)), true\n}\n")
		}
	}
}
