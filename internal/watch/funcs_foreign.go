package watch

import (
	"strings"
	"text/template"

	dep "github.com/hashicorp/consul-template/dependency"
)

// foreignFunctions are those whose data consul-template's own code fetches:
// Vault's, and the few of Consul that are rarely used.
func (x *execution) foreignFunctions() template.FuncMap {
	return template.FuncMap{
		"secret": x.secret, "secrets": x.secrets, "pkiCert": x.pkiCert,
		"partitions": x.partitions, "peerings": x.peerings, "exportedServices": x.exportedServices,
	}
}

func (x *execution) secret(args ...string) (any, error) {
	if len(args) == 0 {
		return nil, nil
	}
	data, err := x.pairs(args[1:])
	if err != nil {
		return nil, err
	}
	var q dep.Dependency
	if len(args) == 1 {
		q, err = dep.NewVaultReadQuery(args[0])
	} else {
		q, err = dep.NewVaultWriteQuery(args[0], data)
	}
	if err != nil {
		return nil, x.invalid(args[0], err)
	}
	s, ok := recall[*dep.Secret](x, foreign(q, args[0]), nil)
	if !ok || s == nil {
		return nil, nil
	}
	return s, nil
}

func (x *execution) secrets(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	q, err := dep.NewVaultListQuery(path)
	if err != nil {
		return nil, x.invalid(path, err)
	}
	list, _ := recall[[]string](x, foreign(q, path), nil)
	return list, nil
}

func (x *execution) pkiCert(args ...string) (any, error) {
	if len(args) == 0 {
		return nil, x.fail("the path is missing")
	}
	data, err := x.pairs(args[1:])
	if err != nil {
		return nil, err
	}
	q, err := dep.NewVaultPKIQuery(args[0], x.destination, data)
	if err != nil {
		return nil, err
	}
	value, _ := x.recall(foreign(q, args[0]))
	return value, nil
}

// pairs reads arguments of the form k=v; empty ones are passed over.
func (x *execution) pairs(args []string) (map[string]any, error) {
	data := map[string]any{}
	for _, a := range args {
		if a == "" {
			continue
		}
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return nil, x.fail("an argument is not of the form k=v")
		}
		data[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return data, nil
}

func (x *execution) partitions() ([]*dep.Partition, error) {
	q, err := dep.NewListPartitionsQuery()
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, foreign(q, ""), []*dep.Partition{})
	return list, nil
}

func (x *execution) peerings(args ...string) ([]*dep.Peering, error) {
	q, err := dep.NewListPeeringQuery(strings.Join(args, ""))
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, foreign(q, strings.Join(args, "")), []*dep.Peering{})
	return list, nil
}

func (x *execution) exportedServices(args ...string) ([]dep.ExportedService, error) {
	q, err := dep.NewListExportedServicesQuery(strings.Join(args, ""))
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, foreign(q, strings.Join(args, "")), []dep.ExportedService{})
	return list, nil
}
