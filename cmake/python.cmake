# SPDX-License-Identifier: Apache-2.0
# weft._core, the Python module in C. It uses the limited API, so one file
# serves every Python from 3.11 on, and it finds libweft in its own folder.
#
# The install component "python" is the whole package, laid out as it lies in
# site-packages; a plain install leaves it out.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

file(GLOB core_sources CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/python/ext/*.c)
if(core_sources)
    python_add_library(weft_core MODULE ${core_sources})
    weft_compile(weft_core)
    target_compile_definitions(weft_core PRIVATE Py_LIMITED_API=0x030B0000)
    # No header declares PyInit__core, and the slots of a type hold functions
    # as void *, which pedantic C refuses.
    target_compile_options(weft_core PRIVATE -Wno-missing-prototypes
                           -Wno-pedantic)
    target_include_directories(weft_core PRIVATE
                               ${PROJECT_SOURCE_DIR}/python/ext)
    target_link_libraries(weft_core PRIVATE weft)
    # LD_LIBRARY_PATH, which C programs are told to set, must not put another
    # libweft in the place of the package's own.
    target_link_options(weft_core PRIVATE LINKER:--disable-new-dtags)
    set_target_properties(weft_core PROPERTIES
        OUTPUT_NAME _core
        SUFFIX .abi3.so
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python
        INSTALL_RPATH "$ORIGIN")
    install(TARGETS weft_core LIBRARY DESTINATION weft COMPONENT python
            EXCLUDE_FROM_ALL)
else()
    message(STATUS "python/ext has no sources: weft._core is not built")
endif()

# What "weft blas run" preloads into a program. It stands alone: it gets into
# processes that have nothing to do with weft.
file(GLOB blas_sources CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/python/ext/blas/*.c)
add_library(weft_blas MODULE ${blas_sources})
weft_compile(weft_blas)
target_link_libraries(weft_blas PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(weft_blas PROPERTIES
    OUTPUT_NAME weftblas
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/blas)
install(TARGETS weft_blas LIBRARY DESTINATION weft/blas COMPONENT python
        EXCLUDE_FROM_ALL)

# A wheel holds no symbolic links, so the library goes in under the one name
# that the loader asks for.
install(FILES $<TARGET_FILE:weft> DESTINATION weft
        RENAME $<TARGET_SONAME_FILE_NAME:weft>
        PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
                    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
        COMPONENT python EXCLUDE_FROM_ALL)
# cmake --install --strip passes over what is installed as a file.
install(CODE "
    if(CMAKE_INSTALL_DO_STRIP AND NOT \"${CMAKE_STRIP}\" STREQUAL \"\")
        execute_process(COMMAND \"${CMAKE_STRIP}\"
            \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/weft/$<TARGET_SONAME_FILE_NAME:weft>\")
    endif()" COMPONENT python EXCLUDE_FROM_ALL)
# For programs in C that are built against an installed package.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION weft/include
        COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN *.h)
# The shim for torch is built where torch is, by python -m weft.torch.build.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/ext/torch/
        DESTINATION weft/torch/source
        COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING
        PATTERN *.cpp PATTERN *.hpp)
if(NOT SKBUILD)
    # scikit-build-core copies these itself.
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/weft DESTINATION .
            COMPONENT python EXCLUDE_FROM_ALL
            PATTERN __pycache__ EXCLUDE)
endif()
