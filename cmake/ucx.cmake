# SPDX-License-Identifier: Apache-2.0
# libweft_ucx.so, the transport over UCX. libweft opens it when a job has more
# ranks than one; nothing links to it, and without UCX's headers it is left out.
# It is built with the headers of UCX 1.13 or later and runs with any later
# libucp.so.0: the one of the PyPI package libucx-cu12 (beside weft in
# site-packages) if that is installed, else the system's.
option(WEFT_UCX "Build the transport over UCX if its headers are here" ON)

set(ucx_found OFF)
if(WEFT_UCX AND NOT WEFT_FUZZ)
    find_path(WEFT_UCX_INCLUDE ucp/api/ucp.h)
    find_library(WEFT_UCX_UCP ucp)
    find_library(WEFT_UCX_UCS ucs)
    if(WEFT_UCX_INCLUDE AND WEFT_UCX_UCP AND WEFT_UCX_UCS)
        set(ucx_found ON)
    else()
        message(NOTICE "no UCX (Debian: libucx-dev): libweft_ucx.so is not "
                       "built, so jobs on several hosts need MPI")
    endif()
endif()

if(ucx_found)
    file(GLOB ucx_sources CONFIGURE_DEPENDS
         ${PROJECT_SOURCE_DIR}/src/transport/ucx/*.c)
    add_library(weft_ucx MODULE ${ucx_sources})
    weft_compile(weft_ucx)
    target_compile_definitions(weft_ucx PRIVATE WF_MODULE)
    target_include_directories(weft_ucx PRIVATE
                               ${PROJECT_SOURCE_DIR}/src
                               ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(weft_ucx SYSTEM PRIVATE ${WEFT_UCX_INCLUDE})
    target_link_libraries(weft_ucx PRIVATE weft ${WEFT_UCX_UCP}
                                           ${WEFT_UCX_UCS})
    set_target_properties(weft_ucx PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
        BUILD_RPATH "$ORIGIN"
        INSTALL_RPATH "$ORIGIN;$ORIGIN/../libucx/lib")
    # It lies beside libweft, wherever that goes.
    install(TARGETS weft_ucx LIBRARY DESTINATION weft COMPONENT python
            EXCLUDE_FROM_ALL)
    if(NOT SKBUILD)
        install(TARGETS weft_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
endif()
