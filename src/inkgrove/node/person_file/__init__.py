"""The file of a person: everything of one identity goes out, and comes in again, here or elsewhere.

`export` writes it, `verify` checks all of it, `load` takes it in, `jobs` lets people have it over HTTP.
docs/person-file.md has the format.
"""

from inkgrove.node.person_file.container import FileReader
from inkgrove.node.person_file.export import WrittenFile, write_person_file
from inkgrove.node.person_file.jobs import ExportJob, Exports
from inkgrove.node.person_file.load import ImportedPerson, deliver_waiting, import_person, import_rows
from inkgrove.node.person_file.secret import seal_secret
from inkgrove.node.person_file.verify import VerifiedPerson, verify_person

__all__ = [
    "ExportJob",
    "Exports",
    "FileReader",
    "ImportedPerson",
    "VerifiedPerson",
    "WrittenFile",
    "deliver_waiting",
    "import_person",
    "import_rows",
    "seal_secret",
    "verify_person",
    "write_person_file",
]
