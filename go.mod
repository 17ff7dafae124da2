module memoc

go 1.26
