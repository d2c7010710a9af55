# Lets Open MPI start more ranks than there are cores, by root, unbound, and where there is no home:
# source this file. Release 4 reads OMPI_..., release 5 PRTE_... What a job keeps in files lies in
# the test's own $folder, so that tests may run side by side.
export HOME=${HOME:-/tmp}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_orte_tmpdir_base=${folder:-/tmp} PRTE_MCA_prte_tmpdir_base=${folder:-/tmp}
